"""SQL functions as files: `<noun>/<name>.sql` is the text that runs, and the loader that applies what changed."""

from migrations.functions.files import FunctionFile, FunctionProblem, digest_of, generation, read_functions
from migrations.functions.loader import apply_functions, create_functions

__all__ = [
    "FunctionFile",
    "FunctionProblem",
    "apply_functions",
    "create_functions",
    "digest_of",
    "generation",
    "read_functions",
]
