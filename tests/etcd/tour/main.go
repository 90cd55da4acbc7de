package main

import _ "sternpost/tests/etcd/servers"

func main() {}
