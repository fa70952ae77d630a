#!/bin/sh
# Joins the processing jobs' files, which HTCondor has brought here.
set -eu
sort -n proc_*.txt > merged.txt
