"""Sections of `docs/performance.md` on image networks."""

from benchmarks.tables import table


def images(result: dict) -> list[str]:
    steps = [
        [
            str(row["inner_samples"]),
            f"{row['seconds_a_step']:.2f} s",
            f"{row['seconds_to_compile']:.0f} s",
            f"{row['peak_megabytes'] / 1024:.2f} GB",
        ]
        for row in result["steps"]
    ]
    layers = [
        [row["layer"], *(f"{row[name]:.1f} ms" for name in ("forward", "gradient", "derivative"))]
        for row in result["convolution"]
    ]
    return [
        "## BB PSVI on LeNet: M = 100, 20 inner steps, batch 256, 10 outer samples",
        "",
        "Learned images, soft labels, weights and total; medians of three runs of two steps. Peak memory is",
        "that of the process, data (60,000 images, 188 MB) and compilation included.",
        "",
        *table(["inner samples", "a step", "to compile", "peak memory"], steps),
        "",
        "LeNet's two convolutions with pooling, 100 images, one draw:",
        "",
        *table(["", "forward", "gradient", "derivative of the gradient"], layers),
    ]
