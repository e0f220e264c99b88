"""Made-up files of GLUE's tasks, and runs of its recipe."""

import random
import re

from support.pretraining import sentence
from support.recipes import EXAMPLES, trainings

from fairseq_posenc.training.sentence_tasks.tasks import read_table

RECIPE = EXAMPLES / "glue"
PREPARE, FINETUNE = RECIPE / "prepare.sh", RECIPE / "finetune.sh"
TASKS = read_table(str(RECIPE / "tasks.yaml"))
# columns of the training files, as in GLUE's archives
HEADERS = {
    "SST-2": "sentence label",
    "MRPC": "Quality|#1 ID|#2 ID|#1 String|#2 String",
    "STS-B": "index genre filename year old_index source1 source2 sentence1 sentence2 score",
    "QQP": "id qid1 qid2 question1 question2 is_duplicate",
    "MNLI": "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse "
    "sentence1_parse sentence2_parse sentence1 sentence2 label1 gold_label",
    "QNLI": "index question sentence label",
    "RTE": "index sentence1 sentence2 label",
}
HEADERS = {task: re.split(r"\|" if "|" in names else " ", names) for task, names in HEADERS.items()}
LABELS = {
    "MNLI": ["entailment", "neutral", "contradiction"],
    "QNLI": ["entailment", "not_entailment"],
    "RTE": ["entailment", "not_entailment"],
    "STS-B": ["0.000", "2.750", "5.000", "4.2"],
}


def row(task, number, one, two, label):
    """A line of a task's file, and of CoLA's too, which has no header."""
    cells = {"sentence": one, "sentence1": one, "question": one, "#1 String": one}
    cells.update({"question1": one, "sentence2": two, "question2": two, "#2 String": two})
    if task == "QNLI":
        cells["sentence"] = two
    cells.update(dict.fromkeys(("label", "Quality", "score", "is_duplicate", "gold_label"), label))
    if task == "CoLA":
        return f"gj04\t{label}\t{'' if label == '1' else '*'}\t{one}"
    return "\t".join(cells.get(name, f"{name}{number}") for name in HEADERS[task])


def made_up(folder, task, sizes):
    """Write the files of a task; returns its examples by file name."""
    draw, examples = random.Random(task), {}
    (folder / task).mkdir(parents=True)
    for name, size in sizes.items():
        kinds = LABELS.get(task, ["0", "1"])
        pairs = [(sentence(draw), sentence(draw)) for _ in range(size)]
        # the label follows from the first sentence, so it can be learned
        examples[name] = [(*pair, kinds[pair[0].count("s") % len(kinds)]) for pair in pairs]
        lines = [] if task == "CoLA" else ["\t".join(HEADERS[task])]
        lines += [row(task, i, *example) for i, example in enumerate(examples[name])]
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return examples


def runs_of(cwd, task, *options):
    given = (f"glue/{task}", "models/mine/last.pt", "out", *options)
    return trainings(FINETUNE, *given, cwd=cwd)
