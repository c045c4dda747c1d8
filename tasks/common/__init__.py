"""What all of the work shares: files, strict models, JSON and addresses."""
