"""Programs of a worker node, simulated: ``cmsRun`` and ``hadd`` behind their own command lines.

They read real configurations (``FWCore.ParameterSet.Config``), write real ROOT files with run, lumi and event numbers, and
report in cmsRun's XML. Time, memory, CPU and failures come from the configuration's ``process.simulation``; see
``profile.py`` and ``failures.py``. Nothing in WMS2 knows that they are not the real ones.

``install.install`` puts launchers for both into a directory for a pool's PATH.
"""
