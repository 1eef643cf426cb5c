"""What a merge reads: sources as a person names them, held against each other, and the rows that are selected of them."""
