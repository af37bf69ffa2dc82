"""`peer launch`: an experiment file as real processes of this machine, from start to result.json.

run.py        all of it, in order: the shell
plan.py       what to start: pure, from an experiment
script.py     whom the faults kill, freeze, start again, and when: pure
cast.py       carries that out
processes.py  starts processes, hands over their lines, ends all of them
tether.py     what each process goes through so that it cannot outlive the launcher
board.py      what every process is doing, from its lines; when a run is lost: pure
display.py    the board on a terminal, or as plain lines
directory.py  the run directory: whose files are in it
log.py        launch.log
result.py     result.json, the table, what the influence shows
report.py     writes, draws and shows that
"""
