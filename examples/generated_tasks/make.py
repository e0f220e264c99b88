"""Write the data of a generated task: ``make.py TASK OUT [flags]``; ``--help`` names all tasks."""

import argparse
import logging
import os
import sys

if __name__ == "__main__":
    logging.disable(logging.INFO)  # fairseq names packages that are not installed
    from fairseq.utils import import_user_module

    import_user_module(argparse.Namespace(user_dir=os.path.dirname(os.path.abspath(__file__))))
    from generated_tasks.writing import main

    main(sys.argv[1:])
