"""What a fine-tuned model says of a binarised test set, without text in between."""
