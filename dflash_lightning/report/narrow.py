"""Keeps a range of steps of a run."""

from dataclasses import fields, replace

from dflash_lightning.report.run import MicroLog, Run


def narrow(run: Run, first: int, last: int) -> Run:
    """The rows of steps first..last, both included.

    Raises: ValueError where no logged step lies there.
    """
    kept = (run.steps >= first) & (run.steps <= last)
    if not kept.any():
        span = f"{run.steps.min():.0f} to {run.steps.max():.0f}"
        raise ValueError(f"no logged step lies from {first} to {last}: {run.name} holds steps {span}")
    kept_val = (run.val_steps >= first) & (run.val_steps <= last)
    return replace(
        run,
        steps=run.steps[kept],
        values={name: values[kept] for name, values in run.values.items()},
        times=run.times[kept],
        val_steps=run.val_steps[kept_val],
        validation={name: values[kept_val] for name, values in run.validation.items()},
        micro=run.micro and _narrow_micro(run.micro, first, last),
        skipped=[line for line in run.skipped if first <= int(line["step"]) <= last],
        non_finite=[step for step in run.non_finite if first <= step <= last],
    )


def _narrow_micro(micro: MicroLog, first: int, last: int) -> MicroLog | None:
    kept = (micro.step >= first) & (micro.step <= last)
    arrays = {field.name: getattr(micro, field.name)[kept] for field in fields(micro)}
    return MicroLog(**arrays) if kept.any() else None
