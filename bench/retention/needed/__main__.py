"""`python -m bench.retention.needed`."""

from bench.retention.needed.run import main

if __name__ == "__main__":
    main()
