"""Reading folders: messages in delivery order, pages of them, selections, counts."""
