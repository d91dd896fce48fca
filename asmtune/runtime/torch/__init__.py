"""PyTorch's compiler: the config of a traced launch, and corrections of Dynamo."""
