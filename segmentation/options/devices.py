"""Names of devices, as `--device` takes them."""

import re

PROCESSORS = ("openvino", "coreml", "directml", "migraphx", "rocm")  # of the network alone; other stages are on the CPU
_FORM = re.compile(rf"cpu|cuda(:\d+)?|openvino:[A-Z]+(\.\d+)?|{'|'.join(PROCESSORS)}")
DEVICES = "auto, cpu, cuda or cuda:N, " + " or ".join([", ".join(PROCESSORS[:-1]), PROCESSORS[-1]])


def is_device(device: str) -> bool:
    """Returns whether a text names a device."""
    return _FORM.fullmatch(device) is not None


def allows_cuda(device: str | None) -> bool:
    """Returns whether stages may run on an NVIDIA GPU."""
    return device is None or device.startswith("cuda")


def processor(device: str | None) -> str | None:
    """Returns the one of `PROCESSORS` that a device names, else `None`."""
    name = (device or "").partition(":")[0]
    return name if name in PROCESSORS else None
