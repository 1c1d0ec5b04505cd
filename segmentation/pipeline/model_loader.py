"""Loading the network while the libraries of other stages are imported."""

from concurrent.futures import Future, ThreadPoolExecutor

from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference


class ModelPreloader:
    """Calls `Inference.preload` on a thread of its own."""

    def __init__(self, model: Model, config: Config) -> None:
        """`config.batch_size` is that of a GPU."""
        self._model, self._config = model, config
        self._preloaded: Future[object] | None = None

    def begin(self, implementation: type[Inference]) -> None:
        """Starts loading for the implementation that the plan has chosen."""
        pool = ThreadPoolExecutor(1, "preload")
        self._preloaded = pool.submit(implementation.preload, self._model, self._config)
        pool.shutdown(wait=False)

    def result(self) -> object:
        """For the implementation's constructor: `None` where nothing was loaded. Raises the error of loading."""
        return None if self._preloaded is None else self._preloaded.result()
