import sys

from segmentation.cli import main

sys.exit(main())
