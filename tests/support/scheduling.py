"""Which process of a run gets which tests, and when.

Tests of the pool wait more than they compute. So the first processes take these, a few at a time, and the last ones, which have
less priority, what needs no pool. Where there are processes of the first kind only, they take what needs no pool as well.
"""

from __future__ import annotations

from collections import OrderedDict

from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support.side_by_side import Kind, kind_of, takes_pool_tests, unit_of


class PoolBesideTheRest(LoadScopeScheduling):
    """Hands out units: a test, or the tests of one file or group. They are in the order in which they are to begin."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        if node.shutting_down:
            return
        # a process begins a test only when it knows the next one
        while self._pending_of(self.assigned_work[node]) < 2:
            if not self._assign_next(node):
                return

    def _assign_next(self, node: WorkerController) -> bool:
        """Give the node a unit if there is one for it; when there will be none any more, it ends."""
        kinds = [kind_of(unit) for unit in self.workqueue]
        wanted = self._kind_for(node, set(kinds))
        if wanted is None:
            node.shutdown()
            return False
        unit = list(self.workqueue)[kinds.index(wanted)]
        self.workqueue.move_to_end(unit, last=False)
        self._assign_work_unit(node)
        return True

    def _kind_for(self, node: WorkerController, left: set[Kind]) -> Kind | None:
        if takes_pool_tests(node.gateway.id):
            if Kind.POOL in left:
                return Kind.POOL
            if any(not takes_pool_tests(other.gateway.id) for other in self.nodes):
                return None
        reads_all = len(self.registered_collections[node]) == len(self.collection or ())
        return Kind.REST if Kind.REST in left and reads_all else None

    def schedule(self) -> None:
        """Hand out the first units; later calls see to nodes that were added."""
        assert self.collection_is_completed
        if self.collection is None:
            collections = self.registered_collections.values()
            whole = max(collections, key=len)  # some have read tests of the pool alone
            if not set(whole).issuperset(nodeid for each in collections for nodeid in each):
                self.log("**Different tests collected, aborting run**")
                return
            self.collection = list(whole)
            units: OrderedDict[str, dict[str, bool]] = OrderedDict()
            for nodeid in self.collection:
                units.setdefault(unit_of(nodeid), {})[nodeid] = False
            self.workqueue.update(units)
        for node in self.nodes:
            self._reschedule(node)
