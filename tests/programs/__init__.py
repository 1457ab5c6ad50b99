"""What is made with the library: the chat, the command, recipes, lessons, pages, nano and micro."""
