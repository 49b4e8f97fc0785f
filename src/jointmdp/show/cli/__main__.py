"""``python -m jointmdp.show.cli``."""

from jointmdp.show.cli import main

main()
