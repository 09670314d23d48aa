"""The section of `docs/performance.md` on compilation, and on the cache that saves it."""

from benchmarks.tables import table

STAGES = ("import", "fit", "sample", "diagnose", "total")
# What a reader has to know to live with the cache.
CACHE = """\
What JAX has compiled for a fit, draws or a certificate is kept for the next process: in the folder `jit` of
the user's cache (`~/.cache/coresetvi` on Linux, or `$XDG_CACHE_HOME/coresetvi`), about 1 MB for a fit with
draws and a certificate. When a process first uses it, the programs that were not read for longest are deleted
if there are more than 256 MB, and so are those that a full disk or a killed process has cut short. Programs
compiled for another processor or another version of JAX are never used. The cache begins with the first call
of `fit`, `sample`, `diagnose` and the like, and from then on also keeps what other code of the same process
compiles.

`CORESETVI_CACHE=off` turns it off; to clear it, delete the folder. Whoever has told JAX where to keep
programs (`JAX_COMPILATION_CACHE_DIR`, or `jax.config`), or to keep none, keeps that setting, and nothing is
said or done where the folder cannot be written. It holds machine code, so it is closed to other users.
"""


def waiting(rows: list[dict]) -> list[str]:
    body = [
        [row["problem"], row["cache"], *(f"{row[name]:.1f}" if name in row else "–" for name in STAGES)]
        for row in rows
    ]
    return [
        "## Waiting for compilation",
        "",
        *CACHE.splitlines(),
        "",
        "Seconds in a new process, medians of three: `BBPSVI(40)`, `sample` and `diagnose` by default,",
        "for phishing and for a logistic regression with six parameters and 5,000 rows in NumPyro, beside",
        "NumPyro's own NUTS on all of them. The total leaves the import out.",
        "",
        *table(["problem", "cache", *STAGES], body),
    ]
