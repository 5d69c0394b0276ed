"""`python -m multihop` is the command line."""

from multihop.cli import main

if __name__ == "__main__":
    main()
