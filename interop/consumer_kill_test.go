package interop

const consumerWorkerEnv = "INTEROP_CONSUMER"

func consumerWorker() {}
