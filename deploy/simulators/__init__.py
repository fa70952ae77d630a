"""Small HTTP servers that speak the wire contracts of ReqMgr2 (with ConfigCache), DBS and CRIC.

They stand where the real services stand: WMS2 knows them by URL only. What they answer and what they refuse is fixed by
the measured contracts of those services (README.md of this folder lists each rule). State in one SQLite file
per service.

Not here: Rucio and HTCondor (the real ones run), and the worker-node programs (``deploy/simulators/worker``).
"""
