#!/bin/sh
# The workers of the job, one a line, each with one slot.
sed -n 's/^\([^ ]\{1,\}\).*/\1:1/p' "$OMPI_MCA_orte_default_hostfile"
