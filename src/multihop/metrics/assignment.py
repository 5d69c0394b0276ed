"""Optimal one-to-one assignment, for metrics that align lists."""

from collections.abc import Sequence
from math import inf


def assign(gains: Sequence[Sequence[float]]) -> list[tuple[int, int]]:
    """Pair rows with columns so that the sum of their gains is highest.

    Every row, or every column where there are fewer of them, gets a partner. Among equally
    good assignments the one is given that SciPy's `linear_sum_assignment(gains,
    maximize=True)` gives; a test compares the two.

    Args:
        gains: As many numbers in each row.

    Returns:
        (row, column) pairs, by row.

    Source: D. F. Crouse, "On implementing 2D rectangular assignment algorithms", IEEE
    Transactions on Aerospace and Electronic Systems 52(4), 2016: shortest augmenting paths.
    """
    if not gains or not gains[0]:
        return []
    costs = [[-gain for gain in row] for row in gains]
    if len(costs) <= len(costs[0]):
        return list(enumerate(_columns_of_rows(costs)))
    flipped = [list(column) for column in zip(*costs, strict=True)]
    return sorted((row, column) for column, row in enumerate(_columns_of_rows(flipped)))


def _columns_of_rows(costs: list[list[float]]) -> list[int]:
    """The column of each row at the lowest total cost; no more rows than columns."""
    rows, columns = len(costs), len(costs[0])
    row_price, column_price = [0.0] * rows, [0.0] * columns  # the dual variables
    column_of: list[int | None] = [None] * rows
    row_of: list[int | None] = [None] * columns

    for start in range(rows):
        # Dijkstra from `start` over reduced costs, to the nearest free column. The order in
        # which columns are looked at, last first, decides between equals.
        distance, reached_from = [inf] * columns, [start] * columns
        open_columns = list(range(columns - 1, -1, -1))
        seen_rows: list[int] = []
        done_columns: list[int] = []
        row, so_far, free = start, 0.0, None
        while free is None:
            seen_rows.append(row)
            nearest, place = inf, 0
            for index, column in enumerate(open_columns):
                through = so_far + costs[row][column] - row_price[row] - column_price[column]
                if through < distance[column]:
                    distance[column], reached_from[column] = through, row
                if distance[column] < nearest or (
                    distance[column] == nearest and row_of[column] is None
                ):
                    nearest, place = distance[column], index
            so_far, column = nearest, open_columns[place]
            owner = row_of[column]
            if owner is None:
                free = column
            else:
                row = owner
            done_columns.append(column)
            open_columns[place] = open_columns[-1]
            open_columns.pop()

        # Prices that keep every reduced cost at 0 or above.
        row_price[start] += so_far
        for seen in seen_rows[1:]:
            held = column_of[seen]
            assert held is not None  # a row is reached through the column it holds
            row_price[seen] += so_far - distance[held]
        for column in done_columns:
            column_price[column] -= so_far - distance[column]

        # Flip the path: each row on it takes the column that led to the next one.
        column = free
        while True:
            row = reached_from[column]
            row_of[column] = row
            before, column_of[row] = column_of[row], column
            if row == start:
                break
            assert before is not None
            column = before
    return [column for column in column_of if column is not None]
