"""Puts a herder's parts together; the composition root gives it what reaches outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from fetchers.sdk import Clock
from metrics.events import Emit
from service.background import Background
from service.herder.bell import Bell
from service.herder.handover import HandOver
from service.herder.herder import WorkerHerder
from service.herder.holdings import Holdings
from service.herder.leader import Fencing, LeaderDuties, Leadership
from service.herder.life import HerderLife
from service.herder.offsets import OffsetRequests
from service.herder.parts import ClusterDoors, HerderSettings, Owners
from service.herder.ports import ConfigStore, InstanceObserver, Instances, Membership, StatusStore
from service.herder.publication import TaskPublication
from service.herder.requests import ConnectorRequests
from service.herder.restarts import RestartRequests
from service.herder.stages import Stages
from service.herder.telling import StatusTeller
from service.herder.tick import Tick
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns


@dataclass(frozen=True, slots=True, kw_only=True)
class HerderIngredients:
    """What differs between a standalone and a distributed worker, and between a test and the real thing."""

    configs: ConfigStore
    statuses: StatusStore
    membership: Membership
    owners: Owners
    make_instances: Callable[[InstanceObserver], Instances]
    doors: ClusterDoors
    settings: HerderSettings
    background: Background
    clock: Clock
    emit: Emit


def assemble(given: HerderIngredients) -> HerderLife:
    """Nothing is started."""
    configs, statuses = given.configs, given.statuses
    clock, settings, doors = given.clock, given.settings, given.doors
    whereabouts = Whereabouts(given.membership, given.owners, has_claim=lambda: configs.is_leader)
    leadership = Leadership(configs, whereabouts, clock, settings.doubt_seconds)
    bell = Bell()
    turns = ChangeTurns(on_fenced=leadership.on_fenced, on_failed=bell.ring)
    view = ClusterView(configs, statuses, settings, doors.type_of)
    fencing = Fencing(
        configs,
        view,
        whereabouts,
        doors,
        turns,
        clock,
        settings,
        spawn=partial(given.background.start, name="fencing"),
        on_ended=bell.ring,
        emit=given.emit,
    )
    publication = TaskPublication(
        configs,
        view,
        whereabouts,
        fencing,
        doors.peers,
        turns,
        clock,
        settings,
        spawn=partial(given.background.start, name="publication"),
        emit=given.emit,
    )
    teller = StatusTeller(configs, statuses, whereabouts, settings.has_topic_tracking, publication.take)
    instances = given.make_instances(teller)
    leader = LeaderDuties(configs, statuses, whereabouts, fencing, turns, clock, settings)
    herder = WorkerHerder(
        configs,
        view,
        whereabouts,
        connectors=ConnectorRequests(configs, view, whereabouts, doors.validator, turns),
        restarts=RestartRequests(configs, view, whereabouts, instances, turns, settings),
        offset_requests=OffsetRequests(view, whereabouts, doors, turns, fencing),
        publication=publication,
        turns=turns,
        settings=settings,
        stages=Stages(clock),
        request_tick=bell.ring_and_wait,
    )
    new_hand_over = partial(HandOver, statuses, whereabouts, clock, settings.graceful_seconds)
    holdings = Holdings(whereabouts, instances, doors.type_of, new_hand_over)
    tick = Tick(view, whereabouts, instances, holdings, leader, teller, doors.set_log_level)
    return HerderLife(
        herder=herder,
        tick=tick,
        teller=teller,
        leader=leader,
        leadership=leadership,
        configs=configs,
        statuses=statuses,
        membership=given.membership,
        instances=instances,
        cluster_id=doors.cluster_id,
        background=given.background,
        clock=clock,
        emit=given.emit,
        bell=bell,
        fencing=fencing,
        turns=turns,
    )
