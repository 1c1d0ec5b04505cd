"""The lines about this machine that `--plan` prints."""

from segmentation.errors import BackendError
from segmentation.gpu.discovery import (
    device_index,
    driver_version,
    find_gpu,
    library_versions,
    require_video_libraries,
)
from segmentation.options.config import Config
from segmentation.stages.decode.nvdec_support import nvdec_engines, nvdec_formats


def machine(config: Config) -> list[str]:
    """Returns a line each about the GPU, the libraries and NVDEC; a single line if there is no GPU."""
    try:
        index = device_index(config)
    except BackendError as exc:
        return [f"{'GPU':<12} none: {exc}"]
    return [
        f"{'GPU':<12} {find_gpu(index)}, driver {driver_version()}",
        f"{'libraries':<12} {library_versions()}",
        f"{'NVDEC':<12} {_nvdec(config, index)}",
    ]


def _nvdec(config: Config, index: int) -> str:
    """Returns NVDEC's engines and formats, or the reason why NVDEC can't be asked."""
    try:
        require_video_libraries()
        formats = nvdec_formats(index)
        return f"{nvdec_engines(config, None)} engines: {', '.join(formats)}"
    except BackendError as exc:
        return f"not to be asked: {exc}"
