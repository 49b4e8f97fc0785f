"""``python -m jointmdp.cli``."""

from jointmdp.cli import main

main()
