"""Intervals with a few numbers of interest, all else ordinary: ten seconds, a hundred batches a device."""

from dflash_lightning.target.balance.interval import DeviceInterval, Interval

SECONDS = 10.0


def interval(
    *,
    wait=0.0,
    feed_wait=0.0,
    source=1.0,
    busy=(5.0,),
    idle=None,
    pending=0.0,
    queued=100.0,
    in_flight=0.0,
    delivered=100.0,
):
    """One rank; `busy` and `idle` in seconds by device, `wait`, `feed_wait` and `source` of the rank."""
    idle = idle if idle is not None else [SECONDS - b for b in busy]
    devices = tuple(
        DeviceInterval(
            depth=2.0,
            queued_tokens=queued,
            pending_tokens=pending,
            busy=b,
            idle=i,
            dispatched=delivered / len(busy),
        )
        for b, i in zip(busy, idle, strict=True)
    )
    return Interval(
        seconds=SECONDS,
        wait=wait,
        feed_wait=feed_wait,
        source=source,
        delivered=delivered,
        bytes_in_flight=float(in_flight),
        peak_bytes=float(in_flight),
        devices=devices,
        buckets=(delivered / 4, 3 * delivered / 4),
    )
