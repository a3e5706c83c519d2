import pytest

from dflash_lightning.commands.bytes_progress import log_lines, sized

MIB = 2**20


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ([(59, 1)], []),
        ([(0, 0), (60, 2)], ["reading: 2.0 MiB of 10.0 MiB, 4 min left"]),
        ([(0, 8), (60, 9)], ["reading: 9.0 MiB of 10.0 MiB, 1 min left"]),  # 8 are of an earlier run
        ([(75, 3)], ["reading: 3.0 MiB of 10.0 MiB"]),  # nothing to tell a speed from
        ([(0, 3), (61, 3)], ["reading: 3.0 MiB of 10.0 MiB"]),
        (
            [(0, 0), (60, 1), (119, 2), (120, 4)],
            ["reading: 1.0 MiB of 10.0 MiB, 9 min left", "reading: 4.0 MiB of 10.0 MiB, 3 min left"],
        ),
        ([(0, 0), (60, 10)], ["reading: 10.0 MiB of 10.0 MiB, 0 min left"]),
    ],
)
def test_a_log_file_gets_a_line_a_minute(calls, lines, capsys):
    times = iter([0, *(seconds for seconds, _ in calls)])
    on_progress = log_lines("reading", clock=lambda: next(times))
    for _, done in calls:
        on_progress(done * MIB, 10 * MIB)
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 MiB"), (2**30 - 1, "1,024.0 MiB"), (3 * 2**30, "3.0 GiB"), (2**43, "8,192.0 GiB")],
)
def test_sizes(size, text):
    assert sized(size) == text
