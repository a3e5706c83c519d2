"""Which checkpoints go. Pure: manifests in, manifests out; no store and no clock.

law   the newest never goes, nor what is protected, nor another run's, nor the best unless keep_best is 0
law   a value that is not finite is never the best
law   asking again after deleting what was named names nothing more
"""

from collections.abc import Collection, Sequence

from dflash_lightning.checkpoint.job import ALL, Mode, Retention
from dflash_lightning.checkpoint.listing import age_order
from dflash_lightning.checkpoint.manifest import Manifest


def to_delete(
    manifests: Sequence[Manifest],
    retention: Retention,
    run_id: str | None,
    *,
    protected: Collection[str] = (),
) -> list[Manifest]:
    """Oldest first. `run_id` None means whoever wrote them; `protected` holds `Manifest.key`.

    A run that continues another's checkpoints as its own carries on its run_id.
    """
    own = sorted((m for m in manifests if run_id in (None, m.run_id)), key=age_order)
    kept = {manifest.name for manifest in _kept(own, retention)}
    if manifests:
        kept.add(max(manifests, key=age_order).name)
    return [m for m in own if m.name not in kept and m.key not in protected]


def best_first(manifests: Sequence[Manifest], monitor: str | None, mode: Mode) -> list[Manifest]:
    """Those with a finite value of the metric; of equals the older comes first."""
    sign = 1 if mode == "min" else -1
    scored = [(value, m) for m in manifests if (value := m.value(monitor)) is not None]
    return [m for _, m in sorted(scored, key=lambda pair: (sign * pair[0], age_order(pair[1])))]


def _kept(own: Sequence[Manifest], retention: Retention) -> list[Manifest]:
    best = best_first(own, retention.monitor, retention.mode)
    return [
        *(own if retention.keep_last == ALL else own[-max(1, retention.keep_last) :]),
        *(best if retention.keep_best == ALL else best[: retention.keep_best]),
        *(m for m in own if retention.every_n_steps is not None and m.step % retention.every_n_steps == 0),
    ]
