"""The outside calls of each kind of effect; every module declares the kinds that it handles."""

from outputs_app.effects import dbs, reqmgr2, rucio, taking_back, validate
from outputs_app.effects.handler import HANDLERS, Handler, Result
