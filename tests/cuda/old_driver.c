// old_driver.c - a driver library from before the functions that are needed.
int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);

int cuInit(unsigned int flags)
{
	return (int)flags;
}

int cuDriverGetVersion(int *version)
{
	*version = 11040;
	return 0;
}
