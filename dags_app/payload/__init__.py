"""Everything that runs on worker nodes and in DAGMan's scripts. Standard library only, no Django, Python 3.9 or later.

Owns: the job wrapper, merge, cleanup, the scripts of a work unit (elect, reelect, collect, post) and the side files they
leave. Does not own: what to run (``job.json`` and ``unit.json`` are the planner's) nor what happens next in WMS2.

The modules import each other relatively: the same code is ``dags_app.payload`` in the source tree and the top-level package
``wms2_payload`` inside ``wms2_payload.pyz``. File formats: ``docs/payload-contract.md``.
"""
