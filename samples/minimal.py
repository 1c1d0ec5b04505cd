"""The core of the pipeline in a minute: its five stages on the CPU, one batch after the other, without threads.

    python samples/minimal.py [INPUT [OUTPUT]]

`segment()` makes the same picture of these stages, with smoothed masks, and runs them at the same time.
"""

import sys
from contextlib import closing
from pathlib import Path

from segmentation import Config, Effect
from segmentation.frames import MaskedBatch
from segmentation.media.muxer import Muxer
from segmentation.media.opening.probe import probe
from segmentation.media.opening.stream_properties import working_format
from segmentation.models.model import load_model
from segmentation.stages.decode.pyav import PyAVDecoder
from segmentation.stages.encode.pyav import PyAVEncoder
from segmentation.stages.inference.onnxruntime import OnnxRuntimeInference
from segmentation.stages.masks.refinement import Refiner
from segmentation.stages.postprocess.opencv import OpenCVPostprocessor
from segmentation.stages.preprocess.opencv import OpenCVPreprocessor


def blur_background(source: Path, target: Path) -> int:
    """Writes `source` with its background blurred. Returns the number of frames."""
    config = Config(batch_size=4, overwrite=True)
    info = probe(str(source))
    model = load_model(config, info)
    frames = 0
    with Muxer(target, info, config) as muxer:  # a file beside the target, which `finish` renames
        pix_fmt = working_format(info.pix_fmt, PyAVEncoder.formats(muxer.codec))
        decode = PyAVDecoder(info, pix_fmt, config)  # planes of YUV, with the timestamps of the file
        preprocess = OpenCVPreprocessor(info, pix_fmt, model, config)  # (N, 3, H, W), as the network takes it
        infer = OnnxRuntimeInference(model, config)  # masks (N, h, w), 0 to 1
        refine = Refiner(info, pix_fmt)  # draws a mask's edge along the picture's edge
        postprocess = OpenCVPostprocessor(info, pix_fmt, Effect.parse(config.effect), config)
        with closing(decode), closing(infer), closing(PyAVEncoder(muxer, info, pix_fmt, config)) as encode:
            muxer.copy_streams(end=None)  # sound, subtitles, chapters
            for batch in decode:
                masks = infer(preprocess(batch)).masks
                masked = MaskedBatch(frames=batch, masks=refine(batch, masks))
                muxer.write(encode.encode(postprocess(masked)))
                frames += len(batch)
            muxer.write(encode.flush())
        muxer.finish(None)
    return frames


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("astronaut.mp4")
    target = Path(sys.argv[2]) if len(sys.argv) > 2 else source.with_suffix(".minimal.mp4")
    print(f"{target}: {blur_background(source, target)} frames")
