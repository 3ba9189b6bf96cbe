"""Let a stage of the pipeline work ahead of the next one, in a thread, by so many items."""

from collections.abc import Iterable, Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 0.2  # seconds between looks at whether the other side is still there
GRACE = 5.0  # seconds for the other side to finish what it is at, when nobody wants it any more


class _End:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def ahead(items: Iterable[T], size: int) -> Iterator[T]:
    """The same items, made in another thread while the caller is busy; at most `size` wait.

    An error in the making is raised where the items are used. When the caller stops early, so does
    the thread. With a size of 0 each item is made when it is asked for, in no thread.
    """
    if size == 0:
        yield from items
        return
    waiting: Queue[T | _End] = Queue(size)
    left = Event()

    def put(item: T | _End) -> None:
        while not left.is_set():
            try:
                waiting.put(item, timeout=PATIENCE)
            except Full:
                continue
            return

    def make() -> None:
        try:
            for item in items:
                put(item)
                if left.is_set():
                    return
        except BaseException as error:  # noqa: BLE001  raised again where the items are used
            put(_End(error))
        else:
            put(_End(None))

    thread = Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = waiting.get(timeout=PATIENCE)  # a wait without end would not hear Ctrl-C
            except Empty:
                continue
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        left.set()
        thread.join(GRACE)
