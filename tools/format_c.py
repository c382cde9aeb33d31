"""Format the C, OpenCL C, CUDA C++ and XPU files of this repository by .clang-format.

Use: python tools/format_c.py [--check]; with --check, files that are not formatted are listed and left as they are.
"""

import argparse
import subprocess
import sys

PATTERNS = ("*.c", "*.h", "*.cpp", "*.hpp", "*.xpu")


def format_files(check: bool) -> int:
    """Format all C files that git tracks, or check them; the exit status of clang-format."""
    listed = subprocess.run(["git", "ls-files", "-z", *PATTERNS], check=True, capture_output=True, text=True).stdout
    mode = ["--dry-run", "--Werror"] if check else ["-i"]
    return subprocess.run(["clang-format", "--style=file", *mode, *listed.split("\0")[:-1]]).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="report files that are not formatted, and change nothing")
    sys.exit(format_files(parser.parse_args().check))
