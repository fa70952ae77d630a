"""What is done outside for each kind of effect; every module declares the kinds that it does."""

from outputs_app.effects import dbs, reqmgr2, rucio, taking_back, validate
from outputs_app.effects.handler import HANDLERS, Handler, Result
