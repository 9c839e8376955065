"""One worker's herder, put together; the composition root gives it what reaches outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fetchers.sdk import Clock
from metrics.events import Emit
from service.background import Background
from service.herder.deletions import Deletions
from service.herder.leader import Fencing, LeaderDuties, Leadership
from service.herder.life import HerderLife, TickRequests
from service.herder.offsets import OffsetRequests
from service.herder.ports import ClusterDoors, InstanceObserver, Instances
from service.herder.publication import TaskPublication
from service.herder.requests import ChangeRequests, ConnectorLocks, RestartRequests
from service.herder.statuses import StatusTeller
from service.herder.tick import Holdings, Tick
from service.herder.view import ClusterView


@dataclass(frozen=True, slots=True)
class WorkerHerder:
    """The ``Herder`` of `service.herder.api`, and its life, which is to be started and stopped."""

    reads: ClusterView
    changes: ChangeRequests
    restarts: RestartRequests
    offsets: OffsetRequests
    publication: TaskPublication
    life: HerderLife


def make_herder(
    view: ClusterView,
    doors: ClusterDoors,
    *,
    make_instances: Callable[[InstanceObserver], Instances],
    background: Background,
    clock: Clock,
    emit: Emit,
) -> WorkerHerder:
    """A herder over the stores and the group in ``view``. Nothing is started."""
    ticks = TickRequests()
    leadership = Leadership(view, clock)
    locks = ConnectorLocks(on_fenced=leadership.on_fenced, on_failed=ticks.request_tick)
    spawn = partial(background.start, name="fencing")
    fencing = Fencing(view, doors.fence_producers, locks, clock, spawn, on_ended=ticks.request_tick, emit=emit)
    spawn = partial(background.start, name="publication")
    publication = TaskPublication(view, fencing, doors.peers, locks, clock, spawn, emit)
    teller = StatusTeller(view, publication.take, doors.hide)
    instances = make_instances(teller)
    spawn = partial(background.start, name="deletion")
    deletions = Deletions(view, doors.source_offsets, doors.deleted_sources, locks, clock, spawn, emit)
    leader = LeaderDuties(view, leadership, fencing, deletions, locks, clock)
    tick = Tick(view, instances, Holdings(view, instances, clock), leader, teller, doors.set_log_level)
    return WorkerHerder(
        reads=view,
        changes=ChangeRequests(view, doors.validator, locks, doors.deleted_sources),
        restarts=RestartRequests(view, instances, locks),
        offsets=OffsetRequests(view, doors.source_offsets, doors.sink_offsets, locks, fencing),
        publication=publication,
        life=HerderLife(view, tick, leader, ticks, doors.cluster_id, background, clock, emit),
    )
