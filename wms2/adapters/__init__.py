"""The only code that talks to ReqMgr2, ConfigCache, DBS, Rucio, CRIC and HTCondor. No Django here, no rules about requests.

``factory`` builds the adapters from ``wms2.conf``; ``types`` holds what they take and answer; ``wire`` the services' own JSON.
Every failure leaves as one of ``wms2.errors`` with the service's message and code kept.
"""
