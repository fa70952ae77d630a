"""What the payload's reader asks of PyROOT, answered by uproot: a worker node of these tests has no ROOT."""

import uproot


class _Tree:
    def __init__(self, tree):
        self._tree = tree

    def GetEntries(self):
        return self._tree.num_entries

    def GetName(self):
        return self._tree.name

    def SetEstimate(self, entries):
        self._room = entries

    def Draw(self, names, selection, option):
        assert self._room > self._tree.num_entries, "ROOT keeps only so many"
        arrays = self._tree.arrays(names.split(":"), library="np")
        self._columns = [arrays[name].astype(float) for name in names.split(":")]
        return len(self._columns[0])

    def GetV1(self):
        return self._columns[0]

    def GetV2(self):
        return self._columns[1]


class TFile:
    kRecovered = 1

    def __init__(self, path):
        self._file = uproot.open(path)

    @classmethod
    def Open(cls, path):
        return cls(path)

    def IsZombie(self):
        return False

    def TestBit(self, bit):
        return False

    def Get(self, name):
        return _Tree(self._file[name])


class gROOT:
    @staticmethod
    def SetBatch(batch):
        pass
