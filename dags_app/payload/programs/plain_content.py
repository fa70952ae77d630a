"""``plain_content.py FILE RESULT``: what a file of plain trees holds, by ROOT itself: events, and events by run and lumi.

Runs in the Python of a CMSSW release, so it must also be Python 2.7. ``RESULT`` gets ``{"events", "lumis"}``.
"""

# mypy: ignore-errors
import collections
import io
import json
import sys

import ROOT


def pairs(tree):
    """(run, lumi) of every entry."""
    tree.SetEstimate(tree.GetEntries() + 1)
    count = tree.Draw("run:luminosityBlock", "", "goff")
    if count != tree.GetEntries():
        raise RuntimeError("%d of %d entries of %s can be read" % (count, tree.GetEntries(), tree.GetName()))
    runs, lumis = tree.GetV1(), tree.GetV2()
    return [(int(runs[entry]), int(lumis[entry])) for entry in range(count)]


ROOT.gROOT.SetBatch(True)
_file = ROOT.TFile.Open(sys.argv[1])
if not _file or _file.IsZombie() or _file.TestBit(ROOT.TFile.kRecovered):
    raise RuntimeError("%s cannot be opened, or was not closed" % sys.argv[1])
_events = pairs(_file.Get("Events"))
_counts = collections.Counter(_events)
_lumis = {}
for _run, _lumi in sorted(set(pairs(_file.Get("LuminosityBlocks"))) | set(_counts)):
    _lumis.setdefault(str(_run), []).append([_lumi, _counts[(_run, _lumi)]])
with io.open(sys.argv[2], "wb") as _stream:
    _stream.write(json.dumps({"events": len(_events), "lumis": _lumis}).encode("utf-8"))
