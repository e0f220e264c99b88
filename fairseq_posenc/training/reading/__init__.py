"""Reading comprehension: questions on passages, answered by a span of the passage."""
