"""`python -m normscope.cli`."""

from normscope.cli import main

if __name__ == "__main__":
    main()
