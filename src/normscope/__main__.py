"""`python -m normscope`."""

from normscope.cli import main

if __name__ == "__main__":
    main()
