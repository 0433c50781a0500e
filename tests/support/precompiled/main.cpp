// Has its headers compiled, for others: it is never built itself.
int main() { return 0; }
