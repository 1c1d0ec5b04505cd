"""Loading the network while the libraries of other stages are imported."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from segmentation.models.model import Model
from segmentation.options.config import Config
from segmentation.stages.inference import Inference


class ModelPreloader:
    """Calls `Inference.preload` on a thread of its own, once for all runs that begin at the same time."""

    def __init__(self, model: Model, config: Config) -> None:
        """`config.batch_size` is that of a GPU."""
        self._model, self._config = model, config
        self._lock = threading.Lock()
        self._preloaded: dict[type[Inference], Future[object] | None] = {}  # `None` once it was handed out

    def begin(self, implementation: type[Inference]) -> None:
        """Starts loading for the implementation that a run's plan has chosen, unless another run has started it."""
        with self._lock:
            if implementation not in self._preloaded:
                pool = ThreadPoolExecutor(1, "preload")
                self._preloaded[implementation] = pool.submit(implementation.preload, self._model, self._config)
                pool.shutdown(wait=False)

    def result(self, implementation: type[Inference]) -> object:
        """For the implementation's constructor, once: `None` where nothing was loaded. Raises the error of loading."""
        with self._lock:
            loading, self._preloaded[implementation] = self._preloaded.get(implementation), None
        return None if loading is None else loading.result()
