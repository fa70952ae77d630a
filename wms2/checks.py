"""``manage.py check`` for WMS2: configuration that Django itself cannot judge. Contacts no service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from wms2.adapters import factory
from wms2.conf import conf
from wms2.errors import ConfigurationError
from wms2.identities.front_end_checks import front_end_findings
from wms2.runtime.credentials import CREDENTIAL_ALERT_SECONDS, CredentialUnusable

#: Whose rules WMCore's services, or people of Data Management, end and adopt: ours would go with them.
ACCOUNTS_OF_OTHERS = frozenset({"wma_prod", "wma_test", "wmcore_output", "wmcore_transferor", "wmcore_pileup", "transfer_ops"})
FORBIDDEN_BELOW = Path("/tmp")  # noqa: S108  DAGMan refuses its node log there (DAGMAN_USE_STRICT)


@register()
def check_configuration(**_: Any) -> list[CheckMessage]:
    """Settings are complete, and places are where DAGMan accepts them."""
    if settings.SETTINGS_MODULE == "wms2.check_settings":
        return []
    try:
        ours = conf()
    except ConfigurationError as error:
        return [Error(str(error), id="wms2.E001")]
    found: list[CheckMessage] = []
    if ours.submit_root.is_relative_to(FORBIDDEN_BELOW):
        found.append(Error(f"WMS2_SUBMIT_ROOT={ours.submit_root} is below /tmp; DAGMan refuses its logs there", id="wms2.E002"))
    if ours.rucio_account.strip().lower() in ACCOUNTS_OF_OTHERS:
        why = "WMCore's MSRuleCleaner ends rules of this account on outputs, or others take ours for theirs; use one of your own"
        found.append(Error(f"WMS2_RUCIO_ACCOUNT={ours.rucio_account}: {why}", id="wms2.E003"))
    if ours.environment == "production" and not ours.proxies_in_front:
        why = "WMS2_PROXIES_IN_FRONT=0: behind a proxy all users have one address; who guesses passwords keeps all waiting"
        found.append(Warning(why, id="wms2.W001"))
    if ours.reqmgr2_follow and not ours.output_placement:
        why = "WMS2_OUTPUT_PLACEMENT is not set, and ReqMgr2 is followed: MSOutput places outputs, WMS2 makes no such rule"
        found.append(Warning(why, "Set it to msoutput, if that is meant, or to wms2 (docs/coexistence.md).", id="wms2.W003"))
    found += front_end_findings(ours)
    for each in factory.all_credentials():
        try:
            each.require(CREDENTIAL_ALERT_SECONDS)
        except CredentialUnusable as error:  # no error: commands must work while a file is being renewed
            found.append(Warning(str(error), id="wms2.W002"))
    return found
