"""Never ends its import."""

import sys
import time

sys.stderr.write("still importing\n")
sys.stderr.flush()
time.sleep(600)
