"""BM25 indexes on disk: built, added to, deleted from and opened.

An index is a folder with a manifest and one generation of engine files:

    DIR/manifest.json       what the index holds; names the generation in use
    DIR/index-1f0c53a2/     the engine's files
    DIR/.lock               held while somebody writes

Writers never touch the generation in use. They make the next one beside it (from nothing, or
from hard links to the old files, which the engine never changes in place), and replacing the
manifest by a rename is the only switch. A writer that is killed leaves the old index as it
was; the next writer removes what it left behind.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import tantivy

import multihop
from multihop.errors import BadInput, CorpusError, IndexMismatch
from multihop.retrievers.bm25_rows import Row, decoded, id_key, row, rows
from multihop.retrievers.content import HASHES, content_hash
from multihop.text import Json, Passage

FORMAT = 2
"""Version of the folder's layout and of what the engine is given. Readers refuse others."""

SETTINGS: Mapping[str, Json] = {"engine": "tantivy 0.27", "analyzer": "english 1"}
"""What decides an index's rankings; an index made with other settings is refused."""

HEAP = 256_000_000
"""Bytes that the engine collects before it writes a segment."""

_GENERATION = re.compile(r"index-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an index says about itself.

    Attributes:
        passages: How many it holds.
        content_hash: The same for the same passages in any order, 32 hex digits.
        format: Layout version.
        package: Version of multihop that wrote it last.
        settings: What decides its rankings.
        source: How the passages were made, as the builder was told: paths, splitting.
        written: When, in UTC, ISO 8601.
        next_number: Document number of the next passage that is added.
        folder: The generation in use.
    """

    passages: int
    content_hash: str
    format: int = FORMAT
    package: str = multihop.__version__
    settings: Mapping[str, Json] = field(default_factory=lambda: dict(SETTINGS))
    source: Mapping[str, Json] = field(default_factory=dict)
    written: str = ""
    next_number: int = 0
    folder: str = ""


def build_index(
    passages: Iterable[Passage],
    into: str | os.PathLike[str],
    *,
    source: Mapping[str, Json] | None = None,
    progress: Callable[[int], None] | None = None,
    on_duplicate: Callable[[Passage], None] | None = None,
    processes: int | None = None,
) -> Manifest:
    """Index passages; an index that is there already is replaced when all is done.

    Memory does not grow with the passages, but for their ids: each is remembered as a 64-bit
    hash (about 100 bytes an id) to notice repeats.

    Args:
        passages: Read once, in order; their order breaks ties between equal scores.
        into: A folder: new, empty, or an older index.
        source: How the passages were made; kept in the manifest.
        progress: Told the count so far, now and then and at the end.
        on_duplicate: Told a passage whose id was there before. It may raise; when it returns,
            the passage is left out. None raises CorpusError.
        processes: How many child processes cut a large corpus into terms (a small one needs
            none); 1 does all in this process. None: one a core that this process may use.

    Raises:
        BadInput: `processes` is below 1.
        CorpusError: No passages; an id twice; the folder holds something else; another
            writer is at work; a child process died.
    """
    folder = Path(into)
    workers = _workers(processes)
    _check_target(folder)
    with _writing(folder) as generation:
        engine = tantivy.Index(_schema(), path=str(generation))
        counted = _write(
            engine,
            passages,
            delete={},
            number=0,
            progress=progress,
            on_duplicate=on_duplicate,
            processes=workers,
        )
        if not counted.passages:
            raise CorpusError(f"{folder}: there are no passages to index. Nothing was changed.")
        return _switch(
            folder,
            generation,
            Manifest(
                passages=counted.passages,
                content_hash=content_hash(counted.content),
                source=source or {},
                next_number=counted.passages,
            ),
        )


def change_index(
    index: str | os.PathLike[str],
    add: Iterable[Passage] = (),
    *,
    delete: Sequence[str] = (),
    source: Mapping[str, Json] | None = None,
    progress: Callable[[int], None] | None = None,
    on_duplicate: Callable[[Passage], None] | None = None,
    processes: int | None = None,
) -> Manifest:
    """Delete passages and add others: all of it, or nothing.

    As in Lucene, a deleted passage still counts in word statistics until the engine merges
    its segment, so scores move a little later than hits.

    Args:
        index: The index's folder.
        add: As for `build_index`; an id that the index holds, and that is not among those
            deleted, counts as a duplicate.
        delete: Ids to delete first; repeats are harmless.
        source: How the added passages were made; replaces entries of the same name.
        progress: As for `build_index`.
        on_duplicate: As for `build_index`.
        processes: As for `build_index`.

    Raises:
        BadInput: The index does not hold an id that is to be deleted; `processes` is below 1.
        CorpusError: There is no index, an id is taken, or another writer is at work.
        IndexMismatch: The index is of another version.
    """
    folder = Path(index)
    workers = _workers(processes)
    read_manifest(folder)
    with _writing(folder, copy=True) as generation:
        old = read_manifest(folder)
        engine = tantivy.Index.open(str(generation))
        gone = _all_there(folder, engine, delete)
        counted = _write(
            engine,
            add,
            delete=gone,
            number=old.next_number,
            progress=progress,
            on_duplicate=on_duplicate,
            processes=workers,
        )
        return _switch(
            folder,
            generation,
            Manifest(
                passages=old.passages + counted.passages - len(gone),
                content_hash=content_hash(int(old.content_hash, 16) + counted.content),
                source={**old.source, **(source or {})},
                next_number=old.next_number + counted.passages,
            ),
        )


# --- Reading ---------------------------------------------------------------------------------


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index.

    Raises:
        CorpusError: There is none, or it cannot be read.
        IndexMismatch: It is of another format version or was made with other settings.
    """
    path = folder / "manifest.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorpusError(
            f"{folder}: no index is here (no manifest.json). "
            f"Build one with: multihop index PATH... --into {folder}"
        ) from None
    except (OSError, ValueError) as broken:
        raise CorpusError(f"{path}: cannot be read ({broken}). Build the index anew.") from None
    version = record.get("format") if isinstance(record, dict) else None
    if version != FORMAT:
        raise IndexMismatch(
            f"{folder}: the index has format version {version!r}, this program reads {FORMAT}. "
            "Build the index anew, or use the multihop that wrote it."
        )
    try:
        manifest = Manifest(**record)
        sound = (
            _GENERATION.fullmatch(manifest.folder)
            and manifest.next_number >= manifest.passages >= 0
            and int(manifest.content_hash, 16) < HASHES
            and isinstance(manifest.settings, dict)
            and isinstance(manifest.source, dict)
        )
    except (TypeError, ValueError):
        sound = None
    if not sound:
        raise CorpusError(f"{path}: not a manifest of an index. Build the index anew.")
    for name, ours in SETTINGS.items():
        theirs = manifest.settings.get(name)
        if theirs != ours:
            raise IndexMismatch(
                f"{folder}: the index was made with {name} {theirs!r}, this program uses "
                f"{ours!r}. Build the index anew."
            )
    return manifest


def open_index(path: str | os.PathLike[str]) -> tuple[Manifest, tantivy.Index, tantivy.Searcher]:
    """Open the generation in use, checked against its manifest.

    What was opened stays readable when the index is rebuilt meanwhile.

    Raises:
        CorpusError: There is no index, or its files are damaged.
        IndexMismatch: It is of another version.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    while True:
        damage = ""
        try:
            engine = tantivy.Index.open(str(folder / manifest.folder))
            searcher = engine.searcher()
        except (ValueError, OSError) as broken:
            damage = str(broken).splitlines()[0]
        # A writer removes a generation only after its switch to another. One that is no longer
        # the current may have lost files while it was opened, which the engine need not notice.
        newer = read_manifest(folder)
        if newer.folder != manifest.folder:
            manifest = newer
            continue
        if damage:
            raise CorpusError(f"{folder}: the index is damaged ({damage}). Build the index anew.")
        if searcher.num_docs != manifest.passages:
            raise CorpusError(
                f"{folder}: the manifest says {manifest.passages} passages, the index holds "
                f"{searcher.num_docs}. Build the index anew."
            )
        return manifest, engine, searcher


def stored_passage(searcher: tantivy.Searcher, address: tantivy.DocAddress) -> Passage:
    """The passage as it was given to the index."""
    return decoded(bytes(searcher.doc(address)["passage"][0]))


def passage_by_id(
    engine: tantivy.Index, searcher: tantivy.Searcher, passage_id: str
) -> Passage | None:
    """Look a passage up by its id."""
    found = searcher.search(_by_key(engine, id_key(passage_id)), 1, count=False).hits
    passage = stored_passage(searcher, found[0][1]) if found else None
    return passage if passage and passage.id == passage_id else None


def _by_key(engine: tantivy.Index, key: int) -> tantivy.Query:
    return tantivy.Query.term_query(engine.schema, "key", key, "basic")


def has_facets(engine: tantivy.Index) -> bool:
    """Whether passages can be chosen by their metadata; an older index does not know it."""
    try:
        tantivy.Query.term_query(engine.schema, "facets", 0, "basic")
    except ValueError:
        return False
    return True


def all_passages(
    engine: tantivy.Index, searcher: tantivy.Searcher, end: int, batch: int = 1000
) -> Iterator[Passage]:
    """All passages, in document order."""
    for start in range(0, end, batch):
        query = tantivy.Query.range_query(
            engine.schema,
            "number",
            tantivy.FieldType.Unsigned,
            start,
            start + batch,
            include_upper=False,
        )
        found = searcher.search(
            query, batch, count=False, order_by_field="number", order=tantivy.Order.Asc
        )
        for _, address in found.hits:
            yield stored_passage(searcher, address)


# --- What the engine is given ----------------------------------------------------------------


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    for name in ("title", "text"):  # analysed by us, so the engine only splits at blanks
        builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
    builder.add_unsigned_field("key", indexed=True)
    builder.add_unsigned_field("number", fast=True)
    builder.add_unsigned_field("text_key", fast=True)
    builder.add_unsigned_field("title_key", fast=True, indexed=True)
    builder.add_boolean_field("abstract", indexed=True)
    builder.add_unsigned_field("facets", indexed=True)  # older indexes have none
    builder.add_bytes_field("passage", stored=True)
    return builder.build()


def _document(row: Row, number: int) -> tantivy.Document:
    document = tantivy.Document()
    document.add_text("title", row.title)
    document.add_text("text", row.text)
    document.add_unsigned("key", row.key)
    document.add_unsigned("number", number)
    document.add_unsigned("text_key", row.text_key)
    document.add_unsigned("title_key", row.title_key)
    document.add_boolean("abstract", row.abstract)
    for facet in row.facets:
        document.add_unsigned("facets", facet)
    document.add_bytes("passage", row.stored)
    return document


@dataclass(slots=True)
class _Counted:
    passages: int = 0
    content: int = 0  # sum of the passages' digests: their order does not count


def _all_there(folder: Path, engine: tantivy.Index, ids: Sequence[str]) -> dict[str, Passage]:
    """The passages with these ids."""
    searcher = engine.searcher()
    found = {passage_id: passage_by_id(engine, searcher, passage_id) for passage_id in ids}
    there = {passage_id: passage for passage_id, passage in found.items() if passage}
    if unknown := [repr(passage_id) for passage_id in found if passage_id not in there]:
        shown = ", ".join(unknown[:5]) + (", ..." if unknown[5:] else "")
        raise BadInput(f"{folder}: holds no passage with id {shown}. Nothing was changed.")
    return there


def _write(
    engine: tantivy.Index,
    passages: Iterable[Passage],
    *,
    delete: Mapping[str, Passage],
    number: int,
    progress: Callable[[int], None] | None,
    on_duplicate: Callable[[Passage], None] | None,
    processes: int,
) -> _Counted:
    """Delete, add passages numbered from `number` on, and commit."""
    held = engine.searcher()
    writer = engine.writer(HEAP, 1)  # one thread: documents keep their order
    counted, seen = _Counted(), set[int]()
    try:
        for gone in map(row, delete.values()):
            # By query: by term, the engine's Python side takes a number below 2**63 as signed.
            writer.delete_documents_by_query(_by_key(engine, gone.key))
            counted.content -= int.from_bytes(gone.digest, "big")
        with contextlib.closing(rows(passages, processes)) as ready:
            for passage, its in ready:
                taken = number and passage.id not in delete and held.doc_freq("key", its.key)
                if its.key in seen or taken:
                    (on_duplicate or _refuse)(passage)
                    continue
                seen.add(its.key)
                writer.add_document(_document(its, number + counted.passages))
                counted.passages += 1
                counted.content += int.from_bytes(its.digest, "big")
                if progress and counted.passages % 256 == 0:
                    progress(counted.passages)
        writer.commit()
    except BaseException:
        writer.rollback()  # stops the engine's thread before its files are removed
        raise
    writer.wait_merging_threads()
    if progress:
        progress(counted.passages)
    return counted


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _workers(processes: int | None) -> int:
    if processes is None:
        return cores()
    if processes < 1:
        raise BadInput(f"processes is {processes}; at least 1 is needed.")
    return processes


def _refuse(passage: Passage) -> None:
    raise CorpusError(f"passage id {passage.id!r} is there twice. Ids are unique in an index.")


# --- Generations -----------------------------------------------------------------------------


def _check_target(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise CorpusError(f"{folder}: is a file. An index is a folder; name another one.")
    names = {path.name for path in folder.iterdir()}
    ours = {name for name in names if name == ".lock" or _GENERATION.fullmatch(name)}
    if names - ours and "manifest.json" not in names:
        raise CorpusError(
            f"{folder}: holds other files ({min(names - ours)}, ...) and no index. "
            "Name a new or empty folder."
        )


@contextlib.contextmanager
def _writing(folder: Path, *, copy: bool = False) -> Iterator[Path]:
    """The next generation's folder, to be filled and switched to; removed on failure."""
    if copy:
        read_manifest(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CorpusError(
                f"{folder}: another process is writing this index. Wait for it to end."
            ) from None
        current = read_manifest(folder).folder if copy else _current(folder)
        _clean(folder, current)
        generation = folder / f"index-{secrets.token_hex(4)}"
        if copy:
            _link_tree(folder / current, generation)
        else:
            generation.mkdir()
        try:
            yield generation
        finally:
            _clean(folder, _current(folder))


def _current(folder: Path) -> str:
    """The generation in use, as far as a manifest of any version names one."""
    try:
        record = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        return str(record["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _clean(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if _GENERATION.fullmatch(path.name) and path.name != keep:
            # A reader that is just opening it may put its lock file back; the next writer
            # removes what is left.
            shutil.rmtree(path, ignore_errors=True)
    (folder / "manifest.json.new").unlink(missing_ok=True)


def _link_tree(old: Path, new: Path) -> None:
    new.mkdir()
    for path in old.iterdir():
        if path.name.endswith(".lock"):
            continue
        try:
            os.link(path, new / path.name)
        except OSError:  # a file system without hard links
            shutil.copy2(path, new / path.name)


def _switch(folder: Path, generation: Path, manifest: Manifest) -> Manifest:
    done = asdict(manifest)
    done["folder"] = generation.name
    done["written"] = datetime.now(UTC).isoformat(timespec="seconds")
    draft = folder / "manifest.json.new"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(done, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / "manifest.json")
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return Manifest(**done)
