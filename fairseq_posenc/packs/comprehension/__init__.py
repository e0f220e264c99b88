"""Reading comprehension: questions on passages, answered by a span or a choice."""
