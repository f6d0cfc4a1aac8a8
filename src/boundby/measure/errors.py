"""What can be wrong with what is to be measured, or with where."""

from __future__ import annotations

from boundby.model.errors import UserError


class TargetError(UserError):
    """What is to be measured cannot be found, raises, or gives nothing to measure."""


class DeviceError(UserError):
    """The device asked for is not here, or cannot be timed."""


class MeasureError(UserError):
    """Choices that do not go together, or a package that is missing for them."""


#: What torch and CUDA say where there is no GPU to use.
_NO_GPU = ("not compiled with CUDA", "No CUDA GPUs are available", "Found no NVIDIA driver")


def next_step(error: BaseException) -> str:
    """What to do about an error that the measured code raised."""
    if any(text in str(error) for text in _NO_GPU):
        return "There is no GPU here: put inputs and model on the CPU, or run it where there is one."
    return "Correct it, and measure again."
